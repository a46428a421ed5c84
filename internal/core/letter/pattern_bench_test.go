package letter_test

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/letter"
)

// texts are what consumers say, long and short.
var texts = []string{
	"order 4711 not found",
	"no customer 3f2b8c1e-9d4a-4f6b-8a2e-1c5d7e9f0a3b in 'shop'",
	"Request failed with status code 503",
	"connect to 10.0.0.7:5432 refused after 3000 ms at 2026-11-24T16:45:30.123Z",
	`duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505): Key (id)=(aB3xK9pQ) already exists.`,
	"I/O error on GET request for \"https://api.example.com/v1/orders/4711?expand=lines\": Connection reset; nested exception is java.net.SocketException: Connection reset",
	"Could not read the message because its payload has a field that this version of the service does not know, and the schema does not allow further fields",
}

// hostile texts are as long as a pattern looks, and of what it looks ahead for.
var hostile = map[string]string{
	"base64": strings.Repeat("a+", 512), "paths": strings.Repeat("/aB3", 256), "queries": "a/b" + strings.Repeat("?", 1021), "quotes": strings.Repeat("9' ", 341),
	"colons": strings.Repeat("::a1", 256), "mail": strings.Repeat("a-@", 341), "keys": strings.Repeat(")=(", 341), "word": strings.Repeat("aB", 512), "parts": strings.Repeat("a-b_", 256),
	"hex": strings.Repeat("A/", 512), "codes": strings.Repeat("error code ", 93), "dates": strings.Repeat("May ", 256),
}

// A pattern is all that is made for a letter.
func TestAPatternIsOneAllocation(t *testing.T) {
	for _, text := range texts {
		if n := testing.AllocsPerRun(100, func() { letter.Pattern(text) }); n > 1 {
			t.Errorf("%v allocations for %q", n, text)
		}
	}
	for name, text := range hostile {
		if n := testing.AllocsPerRun(10, func() { letter.Pattern(text) }); n > 1 {
			t.Errorf("%v allocations for %s", n, name)
		}
	}
}

func BenchmarkHostilePattern(b *testing.B) {
	for name, text := range hostile {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				letter.Pattern(text)
			}
		})
	}
}

func BenchmarkPattern(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range texts {
			letter.Pattern(text)
		}
	}
}
