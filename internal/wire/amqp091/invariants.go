//go:build invariants

package amqp091

import "fmt"

// mustFit panics if a short string of n bytes would have to be cut.
func mustFit(n int) {
	if n > maxShortstr {
		panic(fmt.Sprintf("amqp091: a short string of %d bytes", n))
	}
}
