module github.com/dra-driver-cpumem/dra-driver-cpumem/test

go 1.26.0
