// Package moment counts with moments and spans of time, in milliseconds, that clients,
// policies and operators choose: sums and products that would leave the range of 64 bits
// stop at its end instead. So what is far away stays far away, and no moment is ever
// negative, wherever it comes from.
//
// A moment is milliseconds since 1970, from 0 to Last; Never is none. A span is
// milliseconds, too. The package owns no state and knows no clock.
package moment

import (
	"math"
	"time"
)

const (
	// Never is a moment that does not come.
	Never int64 = math.MaxInt64
	// Last is the last one that does.
	Last = Never - 1
)

// After is the moment that comes a span after another, at most Last and at least 0. What
// comes after Never is Last.
func After(at, span int64) int64 {
	switch at = max(at, 0); {
	case span > Last-at:
		return Last
	case span < -at:
		return 0
	}
	return at + span
}

// Times is n times the span, at most Last. What is negative counts as 0.
func Times(span, n int64) int64 {
	if span <= 0 || n <= 0 {
		return 0
	}
	if span > Last/n {
		return Last
	}
	return span * n
}

// Scale is the span made longer or shorter by a factor: from 0 to Last, whatever the
// factor is. One that is no number changes nothing.
func Scale(span int64, factor float64) int64 {
	switch f := float64(span) * factor; {
	case factor != factor:
		return min(max(span, 0), Last)
	case !(f > 0): // also 0 times infinity
		return 0
	case f >= float64(Last): // which is 2^63 as a float64: it does not fit
		return Last
	default:
		return int64(f)
	}
}

// Duration is n of a unit, as far as a time.Duration reaches in either direction.
func Duration(n int64, unit time.Duration) time.Duration {
	switch most := math.MaxInt64 / int64(unit); {
	case n > most:
		return math.MaxInt64
	case n < -most:
		return math.MinInt64
	}
	return time.Duration(n) * unit
}

// Milliseconds is Duration of milliseconds.
func Milliseconds(n int64) time.Duration { return Duration(n, time.Millisecond) }

// OfSeconds is the moment so many seconds after 1970, at most Last.
func OfSeconds(seconds uint64) int64 {
	if seconds > uint64(Last)/1000 {
		return Last
	}
	return int64(seconds) * 1000
}

// Read is the moment of a number that was written as an unsigned one. ok is false if
// nobody who kept to this package can have written it: it is Last then.
func Read(v uint64) (at int64, ok bool) {
	if v > uint64(Never) {
		return Last, false
	}
	return int64(v), true
}
