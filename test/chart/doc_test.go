// SPDX-License-Identifier: Apache-2.0

// Package chart_test renders the Helm chart with the helm program and reads the
// result back strictly into API types. It stands before the cluster tests:
// what can be said about the chart without an API server is said here.
package chart_test
