module github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract

go 1.26.0
