package letter_test

import (
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

func BenchmarkPattern(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range texts {
			letter.Pattern(text)
		}
	}
}
