// Package prometheus shows that what deploy/ has for Prometheus and Grafana works: a
// real Prometheus scrapes a node on which messages die, every rule evaluates, every
// panel of the dashboard has data, and the alerts fire; promtool checks their times.
//
// It needs prometheus and promtool on the PATH (Debian's package prometheus has
// both; scripts/testtools unpacks them). Without them it is skipped, and fails where CI is
// true in the environment.
package prometheus
