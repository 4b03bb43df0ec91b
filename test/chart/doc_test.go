// SPDX-License-Identifier: Apache-2.0

// Package chart_test renders the Helm chart with the helm program and decodes the
// result strictly into API types. It has the chart's tests without an API server; the
// cluster tests have the rest.
package chart_test
