module github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator

go 1.26.0
