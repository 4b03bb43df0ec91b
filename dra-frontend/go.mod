module github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend

go 1.26.0
