package moment

import (
	"math"
	"math/big"
	"testing"
	"time"
)

var extremes = []int64{
	0, 1, 2, 999, 1000, 1 << 31, 1<<31 - 1, 1 << 32, 1 << 53, 1_750_000_000_000, 1 << 62, 1<<62 + 1, Last - 1, Last, Never,
	-1, -2, -1 << 31, -1 << 62, math.MinInt64, math.MinInt64 + 1,
}

func clamp(v *big.Int) int64 {
	if v.Sign() < 0 {
		return 0
	}
	if last := big.NewInt(Last); v.Cmp(last) > 0 {
		return Last
	}
	return v.Int64()
}

func TestSumsAndProductsStopAtTheEnd(t *testing.T) {
	for _, a := range extremes {
		for _, b := range extremes {
			sum := new(big.Int).Add(big.NewInt(max(a, 0)), big.NewInt(b))
			if got, want := After(a, b), clamp(sum); got != want {
				t.Errorf("After(%d, %d) = %d, want %d", a, b, got, want)
			}
			product := new(big.Int).Mul(big.NewInt(max(a, 0)), big.NewInt(max(b, 0)))
			if got, want := Times(a, b), clamp(product); got != want {
				t.Errorf("Times(%d, %d) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestNoFactorMakesASpanNegative(t *testing.T) {
	factors := []float64{0, 1, 0.5, 2, 1e9, 1e300, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64}
	for _, span := range extremes {
		for _, f := range factors {
			if got := Scale(span, f); got < 0 || got > Last {
				t.Errorf("Scale(%d, %g) = %d", span, f, got)
			}
		}
	}
	for _, c := range []struct {
		span   int64
		factor float64
		want   int64
	}{
		{1000, 1.5, 1500}, {1000, 1e300, Last}, {1000, math.NaN(), 1000}, {0, math.Inf(1), 0}, {1 << 62, 2, Last}, {Never, 1, Last},
	} {
		if got := Scale(c.span, c.factor); got != c.want {
			t.Errorf("Scale(%d, %g) = %d, want %d", c.span, c.factor, got, c.want)
		}
	}
}

func TestDurationsStopAtTheEnd(t *testing.T) {
	for _, n := range extremes {
		for _, unit := range []time.Duration{1, time.Millisecond, time.Second, time.Hour} {
			exact := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(unit)))
			want := time.Duration(math.MaxInt64)
			switch {
			case exact.IsInt64():
				want = time.Duration(exact.Int64())
			case n < 0:
				want = math.MinInt64
			}
			if got := Duration(n, unit); got != want {
				t.Errorf("Duration(%d, %v) = %d, want %d", n, unit, got, want)
			}
		}
	}
}

func TestMomentsOfOthers(t *testing.T) {
	if OfSeconds(18446744074) != 18446744074000 || OfSeconds(math.MaxUint64) != Last || OfSeconds(uint64(Last)/1000+1) != Last {
		t.Error("seconds do not stop at the end")
	}
	if at, ok := Read(1 << 63); at != Last || ok {
		t.Errorf("Read(1<<63) = %d, %v", at, ok)
	}
	if at, ok := Read(math.MaxInt64); at != Never || !ok {
		t.Errorf("Read of Never = %d, %v", at, ok)
	}
}
