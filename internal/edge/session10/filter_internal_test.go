package session10

import "testing"

// What RabbitMQ's grammar of filters reads, and what not.
func TestSQLFilters(t *testing.T) {
	for text, want := range map[string]bool{
		"a = 1":           true,
		"a = ":            false,
		"":                false,
		"  ":              false,
		"NOT (b IS NULL)": true,
		"b IS NOT NULL":   true,
		"1 IS NULL":       false,
		"properties.subject LIKE 'a%' AND NOT (b IS NULL)": true,
		"p.nope = 1":              false,
		"header.priority > 4":     true,
		"h.durable":               false,
		"a LIKE 'x!%' ESCAPE '!'": true,
		"a LIKE 'x' ESCAPE 'ab'":  false,
		"a LIKE b":                false,
		"a NOT IN ('x', 'y')":     true,
		"a IN ()":                 false,
		"a IN ('x',)":             false,
		"a = b = c":               false,
		"a + -b * 2 <= 0x0F":      true,
		"[a b] <> \"c\"":          true,
		"and = 1":                 false,
		"a and b":                 false,
		"a AND":                   false,
		"a NOT b":                 false,
		"UTC() > 5":               true,
		"UTC > 5":                 false,
		"a = 'it''s'":             true,
		"a = 'open":               false,
		"(a = 1":                  false,
		"a ; b":                   false,
		"TRUE OR FALSE":           true,
	} {
		if got := isSQL(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
