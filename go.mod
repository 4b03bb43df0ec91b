module github.com/dra-driver-cpumem/dra-driver-cpumem

go 1.26.0
