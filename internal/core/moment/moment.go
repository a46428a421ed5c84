// Package moment computes with moments and spans that clients, policies and operators
// choose. Sums and products saturate at the range of 64 bits. So a moment that is far away
// stays far away, and no moment is ever negative.
//
// A moment is milliseconds since 1970, from 0 to Last, or Never. A span is milliseconds. All
// layers call the package. It owns no state and never reads a clock.
package moment

import (
	"math"
	"time"
)

const (
	// Never is a moment that does not come.
	Never int64 = math.MaxInt64
	// Last is the last moment that comes.
	Last = Never - 1
)

// After is the moment a span after at, at most Last and at least 0. After Never it is Last.
func After(at, span int64) int64 {
	switch at = max(at, 0); {
	case span > Last-at:
		return Last
	case span < -at:
		return 0
	}
	return at + span
}

// Times is n times the span, at most Last. A negative argument counts as 0.
func Times(span, n int64) int64 {
	if span <= 0 || n <= 0 {
		return 0
	}
	if span > Last/n {
		return Last
	}
	return span * n
}

// Scale is the span multiplied by a factor, from 0 to Last. A factor that is not a number
// changes nothing.
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

// Duration is n units, saturated at the range of time.Duration.
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

// OfSeconds is the moment this many seconds after 1970, at most Last.
func OfSeconds(seconds uint64) int64 {
	if seconds > uint64(Last)/1000 {
		return Last
	}
	return int64(seconds) * 1000
}

// Read is the moment that was written as an unsigned number. If the number is out of range,
// which no code that uses this package writes, ok is false and the moment is Last.
func Read(v uint64) (at int64, ok bool) {
	if v > uint64(Never) {
		return Last, false
	}
	return int64(v), true
}
