// Package rules is the test of what contrib asks Prometheus for: by Prometheus's
// own parser and engine, which the program itself does not need.
package rules
