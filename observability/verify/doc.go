// Package verify checks that no signal of Coord goes unwatched: the catalog against the
// code that emits, against the lines that a test run wrote, against the alarms, and the
// alarms against the runbook. What is generated is checked with the tools that will read
// it: Prometheus' own parser and engine, CloudFormation's schema, Grafana's types.
//
// CloudWatch has no local evaluator; see [Pattern] for the part of its language that is
// evaluated here, on lines that zap wrote.
package verify

//go:generate go run ./cmd/verify-alarms -root ../.. -write-sites
