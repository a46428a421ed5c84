package api

import (
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// BR-15.13: rates are events a second, from samples five seconds apart.
func TestRates(t *testing.T) {
	var h history
	at := time.Unix(1000, 0)
	steps := []struct {
		after time.Duration
		n     float64
		want  float64
	}{
		{0, 100, 0},                // nothing to compare with
		{time.Second, 200, 0},      // too early
		{4 * time.Second, 150, 10}, // 50 in 5 s
		{time.Second, 1000, 10},    // as before
		{9 * time.Second, 150, 0},
	}
	for i, step := range steps {
		at = at.Add(step.after)
		if got := h.note("q", at, span{}, map[string]float64{"publish": step.n})["publish"]["rate"]; got != decimal(step.want) {
			t.Errorf("step %d: rate %v, want %g", i, got, step.want)
		}
	}
	h.note("other", at.Add(2*historyKept), span{}, map[string]float64{"publish": 1})
	if len(h.objects) != 1 {
		t.Errorf("%d objects are remembered, want the one asked about lately", len(h.objects))
	}
}

// BR-15.13: samples stand at whole steps, the newest first.
func TestSamples(t *testing.T) {
	var h history
	began := time.Unix(1000, 0)
	ask := func(after time.Duration, n float64) map[string]any {
		return h.note("q", began.Add(after), span{age: 20 * time.Second, step: 5 * time.Second}, map[string]float64{"messages": n})["messages"]
	}
	ask(0, 10)
	ask(5*time.Second, 20)
	ask(10*time.Second, 20)
	d := ask(15*time.Second, 40)
	same := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	points := d["samples"].([]map[string]any)
	same("points", len(points), 5)
	for i, want := range []int64{40, 20, 20, 10, 10} {
		same("sample", points[i]["sample"], want)
		same("timestamp", points[i]["timestamp"], began.Add(time.Duration(15-5*i)*time.Second).UnixMilli())
	}
	same("avg", d["avg"], decimal(20))
	same("avg_rate", d["avg_rate"], decimal(1.5))
}

// An object that somebody looks at for ten minutes takes little, and hardly anything if no curve is drawn of it, or any more.
func TestHistoriesAreSmall(t *testing.T) {
	const objects = 50
	at := time.Unix(1000, 0)
	use := func(h *history, s span, n int) {
		for range n {
			at = at.Add(sampleInterval)
			count := float64(at.Unix())
			for i := range objects {
				h.note(strconv.Itoa(i), at, s, map[string]float64{
					"deliver": count, "deliver_no_ack": count, "get": count, "get_no_ack": count, "get_empty": count, "deliver_get": count, "ack": count,
					"redeliver": count,
				})
			}
		}
	}
	taken := func(what string, h *history, most int, f func()) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		f()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := (int(after.HeapAlloc) - int(before.HeapAlloc)) / objects; each > most {
			t.Errorf("%s: %d bytes an object, want %d at most", what, each, most)
		}
		runtime.KeepAlive(h)
	}
	var rates, curves history
	drawn := span{age: time.Minute, step: 5 * time.Second}
	taken("rates", &rates, 2<<10, func() { use(&rates, span{}, 200) })
	taken("curves", &curves, 16<<10, func() { use(&curves, drawn, 200) })
	taken("no curves any more", &curves, 0, func() { use(&curves, span{}, 200) })
	d := curves.note("0", at, drawn, map[string]float64{
		"deliver": 1, "deliver_no_ack": 1, "get": 1, "get_no_ack": 1, "get_empty": 1, "deliver_get": 1, "ack": 1, "redeliver": 1,
	})["deliver"]
	if n := len(d["samples"].([]map[string]any)); n != 13 || d["rate"] != decimal(1) {
		t.Errorf("%d points and a rate of %v where curves are drawn again, want 13 and 1", n, d["rate"])
	}
}

// A query may ask for any span: one that does not fit a time.Duration is none, and a
// product that wraps must not become a step of nothing.
func TestSpansOfAQueryFit(t *testing.T) {
	numbers := []string{"", "0", "-1", "1", "60", "NaN", "1e300", "2147483648", "9007199254740992", "9223372036854775807", "9223372036854775808",
		"9223372037", "18446744074", "36028797018963968", "36893488147", "4611686018427387904", "9223372036"}
	var inverse uint64 = 1 // of 5^9: with it a step of 512 ns is a number of seconds
	for range 6 {
		inverse *= 2 - 1953125*inverse
	}
	for _, wrapped := range []uint64{inverse, inverse & (1<<55 - 1), (inverse * 3) & (1<<55 - 1), 1 << 55} {
		numbers = append(numbers, strconv.FormatUint(wrapped, 10), strconv.FormatUint(wrapped*900, 10))
	}
	for _, age := range numbers {
		for _, step := range numbers {
			r := httptest.NewRequest("GET", "/api/queues?"+url.Values{"lengths_age": {age}, "lengths_incr": {step}}.Encode(), nil)
			s := spanOf(r, lengthsSpan)
			if s == (span{}) {
				continue
			}
			if s.step < time.Second || s.age < time.Second || s.age/s.step > maxPoints {
				t.Errorf("age %s, step %s: %+v", age, step, s)
				continue
			}
			p := past{names: []string{"n"}}
			p.sample(time.Now(), map[string]float64{"n": 1})
			details := map[string]any{}
			p.draw(details, 0, time.Now(), s)
			if n := len(details["samples"].([]map[string]any)); n == 0 || n > maxPoints+1 {
				t.Errorf("age %s, step %s: %d samples", age, step, n)
			}
		}
	}
}

// A history of a day keeps every change of ten minutes, one a minute of an hour, and one each five minutes of the rest; what it
// has kept are the values at the steps of charts.
func TestAHistoryOfADay(t *testing.T) {
	var h history
	began := time.Unix(0, 0).Add(100 * 24 * time.Hour)
	value := func(at time.Time) float64 { return float64(at.Unix() % 7919) }
	at := began
	for ; at.Before(began.Add(30 * time.Hour)); at = at.Add(10 * time.Second) {
		h.keep("overview", at, map[string]float64{"messages": value(at)})
	}
	p := h.objects["overview"]
	if n := len(p.times); n > 520 {
		t.Errorf("%d samples", n)
	}
	for _, s := range []span{{age: 10 * time.Minute, step: 10 * time.Second}, {age: time.Hour, step: time.Minute}, {age: 24 * time.Hour, step: 10 * time.Minute}} {
		d := h.note("overview", at, s, map[string]float64{"messages": value(at)})["messages"]
		for _, point := range d["samples"].([]map[string]any) {
			ms := point["timestamp"].(int64)
			if want := int64(value(time.UnixMilli(ms))); point["sample"] != want {
				t.Fatalf("of %v: %v before %v it was %v, want %d", s.age, at.Sub(time.UnixMilli(ms)), at, point["sample"], want)
			}
		}
	}
	h.dismiss("overview")
	if n := len(p.times); n > maxSamples {
		t.Errorf("%d samples of what has no history of a day any more", n)
	}
}

// A node that does nothing keeps one sample a day.
func TestAQuietDayIsOneSample(t *testing.T) {
	var h history
	at := time.Unix(1000, 0)
	for range 24 * 60 {
		at = at.Add(time.Minute)
		h.keep("overview", at, map[string]float64{"messages": 7})
	}
	if n := len(h.objects["overview"].times); n != 1 {
		t.Errorf("%d samples", n)
	}
}

// An answer with samples says since when there are any: before that a chart has nothing to draw.
func TestAnswersSayWhenSamplesBegin(t *testing.T) {
	at := time.Unix(1000, 0)
	drawn := span{age: time.Minute, step: 5 * time.Second}
	for _, tells := range []bool{true, false} {
		h := history{tellsStart: tells}
		h.note("q", at, drawn, map[string]float64{"messages": 1})
		d := h.note("q", at.Add(7*time.Second), drawn, map[string]float64{"messages": 2})["messages"]
		if since, told := d["samples_since"]; told != tells || tells && since != at.UnixMilli() {
			t.Errorf("samples_since is %v, told %v; want %v", since, told, tells)
		}
	}
}

// Queues that somebody looks at have a history of a day, but not any number of them.
func TestFewQueuesHaveAHistoryOfADay(t *testing.T) {
	var w watched
	at := time.Unix(1000, 0)
	gone := map[string]bool{}
	for i := range uint64(maxWatched + 10) {
		w.watch(watchedQueue{"/", "q", i}, at.Add(time.Duration(i)), func(key string) { gone[key] = true })
	}
	if len(w.queues) != maxWatched || len(gone) != 3*10 || !gone[watchedQueue{"/", "q", 9}.key()] || gone[watchedQueue{"/", "q", 10}.key()] {
		t.Errorf("%d are watched, %d histories were ended: %v", len(w.queues), len(gone), gone)
	}
}
