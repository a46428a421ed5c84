package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"bartleby.mq/internal/core/moment"
)

// history keeps the values of counters and lengths at earlier requests. From these it
// computes rates, and it returns the earlier values (BR-15.13). It samples at
// requests, and keeps only one sample until a request asks for a span: a tool that draws
// curves asks every few seconds. Some objects have a history of a day: Handler.Sample
// samples them too.
type history struct {
	// tellsStart has answers with samples say when the first was taken. RabbitMQ does not say.
	tellsStart bool

	mu      sync.Mutex
	objects map[string]*past
	swept   time.Time
}

// past holds the samples of one object.
type past struct {
	day   bool // its history is of a day
	asked time.Time
	drawn time.Time // when samples were last requested; without requests there is one, for rates
	names []string  // names of the values, in their order
	// times and values are the samples in the order of time; of equal neighbours only the first is kept.
	times   []int64   // in nanoseconds since 1970
	values  []float64 // as many as there are names for each sample
	last    time.Time
	rates   []float64 // as of last; nil: none yet
	thinned time.Time // when samples of a day's history were last made fewer
	noted   time.Time // when a request last asked for it
}

const (
	sampleInterval  = 5 * time.Second  // RabbitMQ's interval of statistics (BR-15.16)
	historyKept     = 10 * time.Minute // of objects, and of those nobody asked about
	maxSamples      = 120              // of an object: ten minutes of change
	asksOften       = 2 * time.Minute  // who asks less often gets no rates
	dayKept         = 25 * time.Hour   // of objects with a history of a day: a chart of 24 h begins at a whole step
	maxPoints       = 1000             // of one value
	maxStrictPoints = 500              // of one value, in RabbitMQ
	maxAllPoints    = 1 << 17          // of one answer, which may be about many objects, and is made in memory
)

// span is how far back an answer reaches, and its steps; the zero span has only rates.
type span struct {
	age, step time.Duration
	left      *int // points that the answer still has room for; nil: any number
}

// take says whether there is room for the points of one value, and takes it.
func (s *span) take() bool {
	if s.step <= 0 {
		return false
	}
	if s.left == nil {
		return true
	}
	*s.left -= int(s.age/s.step) + 1
	return *s.left >= 0
}

// The spans of a request, by the names of its parameters: NAME_age and NAME_incr,
// in seconds.
const (
	lengthsSpan  = "lengths"
	ratesSpan    = "msg_rates"
	dataSpan     = "data_rates"
	nodeSpan     = "node_stats"
	spanSuffix   = "_age"
	spanStepName = "_incr"
)

// numbersOf reads the parameters of a span.
func numbersOf(r *http.Request, name string) (age, step int64, ok bool) {
	q := r.URL.Query()
	age, err := strconv.ParseInt(q.Get(name+spanSuffix), 10, 64)
	step, err2 := strconv.ParseInt(q.Get(name+spanStepName), 10, 64)
	return age, step, err == nil && err2 == nil
}

func spanOf(r *http.Request, name string) span {
	age, step, ok := numbersOf(r, name)
	if !ok || age <= 0 || step <= 0 || age/step > maxPoints {
		return span{}
	}
	return span{age: moment.Duration(age, time.Second), step: moment.Duration(step, time.Second)}
}

// span reads a span of a request. All values of a request share the number of points.
func (r *request) span(name string) span {
	s := spanOf(r.Request, name)
	if s.step > 0 {
		s.left = &r.points
	}
	return s
}

// spans are all spans of a request.
type spans struct{ lengths, rates, data, node span }

func (r *request) spans() spans {
	return spans{r.span(lengthsSpan), r.span(ratesSpan), r.span(dataSpan), r.span(nodeSpan)}
}

// put sets values in an object, each with its rate and, if requested and within the limit, its
// samples as NAME_details.
func (h *history) put(into map[string]any, object string, s span, values map[string]float64) {
	details := h.note(object, time.Now(), s, values)
	for name, n := range values {
		into[name] = int64(n)
		into[name+"_details"] = details[name]
	}
}

// note records the present values, and returns the past of the object.
func (h *history) note(object string, now time.Time, s span, values map[string]float64) map[string]map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.record(object, now, s.step > 0, values)
	if now.Sub(p.noted) > asksOften {
		p.rates = nil // since Handler.Sample, up to a minute ago: whoever opens a page would take them for the present
	}
	p.noted = now
	details := make(map[string]map[string]any, len(values))
	for i, name := range p.names {
		d := map[string]any{"rate": decimal(0)}
		if p.rates != nil {
			d["rate"] = decimal(p.rates[i])
		}
		if s.take() {
			p.draw(d, i, now, s)
			if h.tellsStart {
				d["samples_since"] = time.Unix(0, p.times[0]).UnixMilli()
			}
		}
		details[name] = d
	}
	return details
}

// keep records the present values of an object whose history is of a day.
func (h *history) keep(object string, now time.Time, values map[string]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record(object, now, false, values).day = true
}

// dismiss ends the history of a day that an object had.
func (h *history) dismiss(object string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.objects[object]; p != nil && p.day {
		p.day = false
		p.drop(max(0, len(p.times)-maxSamples))
	}
}

// record takes a sample of an object if it is time for one; drawn says that a curve is drawn of it. REQUIRES: h.mu is held.
func (h *history) record(object string, now time.Time, drawn bool, values map[string]float64) *past {
	h.sweep(now)
	p := h.objects[object]
	if p == nil || !p.isOf(values) {
		if h.objects == nil {
			h.objects = map[string]*past{}
		}
		p = &past{last: now, names: slices.Sorted(maps.Keys(values))}
		p.sample(now, values)
		h.objects[object] = p
	}
	p.asked = now
	if drawn {
		p.drawn = now
	}
	if passed := now.Sub(p.last); passed >= sampleInterval {
		p.advance(now, passed, values)
	}
	return p
}

// isOf says whether the values have the names of the object's.
func (p *past) isOf(values map[string]float64) bool {
	for _, name := range p.names {
		if _, ok := values[name]; !ok {
			return false
		}
	}
	return len(values) == len(p.names)
}

// sample adds a sample.
func (p *past) sample(now time.Time, values map[string]float64) {
	p.times = append(p.times, now.UnixNano())
	for _, name := range p.names {
		p.values = append(p.values, values[name])
	}
}

// advance takes a new sample.
func (p *past) advance(now time.Time, passed time.Duration, values map[string]float64) {
	if p.rates == nil {
		p.rates = make([]float64, len(p.names))
	}
	before := p.values[len(p.values)-len(p.names):]
	changed := false
	for i, name := range p.names {
		p.rates[i] = (values[name] - before[i]) / passed.Seconds()
		changed = changed || values[name] != before[i]
	}
	p.last = now
	if p.day {
		if changed {
			p.sample(now, values)
		}
		p.thin(now)
		return
	}
	idle := now.Sub(p.drawn) > historyKept // no tool draws curves of it
	if idle && len(p.times) > 1 {
		p.times, p.values = []int64{p.times[len(p.times)-1]}, slices.Clone(before)
	}
	if !changed {
		return
	}
	if idle || len(p.times) >= maxSamples {
		p.drop(1)
	}
	p.sample(now, values)
}

// drop forgets the oldest samples.
func (p *past) drop(n int) {
	p.times = append(p.times[:0], p.times[n:]...)
	p.values = append(p.values[:0], p.values[n*len(p.names):]...)
}

// tiers are how far apart the samples of a day's history are, by age. Steps of charts are multiples of these, so their
// values are exact.
var tiers = []struct{ until, step time.Duration }{{10 * time.Minute, 0}, {time.Hour, time.Minute}, {dayKept, 5 * time.Minute}}

// thin makes the samples of a day's history fewer the older they are: about 500. Of each step the last one stays, because it
// is the value at the step's end.
func (p *past) thin(now time.Time) {
	if now.Sub(p.thinned) < time.Minute {
		return
	}
	p.thinned = now
	kept, n := 0, len(p.names)
	for i, at := range p.times {
		if i+1 < len(p.times) && p.covered(i, now) {
			continue
		}
		p.times[kept] = at
		copy(p.values[kept*n:(kept+1)*n], p.values[i*n:(i+1)*n])
		kept++
	}
	p.times, p.values = p.times[:kept], p.values[:kept*n]
}

// covered says whether the sample after this one makes it superfluous.
func (p *past) covered(i int, now time.Time) bool {
	at, next := p.times[i], p.times[i+1]
	if now.UnixNano()-next > int64(dayKept) {
		return true
	}
	for _, t := range tiers {
		if now.UnixNano()-at <= int64(t.until) {
			return t.step > 0 && (at-1)/int64(t.step) == (next-1)/int64(t.step)
		}
	}
	return false
}

// draw adds the samples of one value, the newest first, and their averages.
func (p *past) draw(details map[string]any, value int, now time.Time, s span) {
	end := now.Truncate(s.step)
	var points []map[string]any
	sum, newest, oldest := 0.0, 0.0, 0.0
	for at := end; !at.Before(end.Add(-s.age)); at = at.Add(-s.step) {
		n := p.valueAt(value, at)
		if len(points) == 0 {
			newest = n
		}
		oldest = n
		sum += n
		points = append(points, map[string]any{"sample": int64(n), "timestamp": at.UnixMilli()})
	}
	details["samples"] = points
	details["avg"] = decimal(sum / float64(len(points)))
	details["avg_rate"] = decimal((newest - oldest) / s.age.Seconds())
}

// decimal is a number that is a fraction in JSON even if it is whole, as in RabbitMQ: some clients decode 0 and 0.0 differently.
type decimal float64

// MarshalJSON implements json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(d))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// valueAt is a value at a time; before the first sample it is the value of the first.
func (p *past) valueAt(value int, at time.Time) float64 {
	i := len(p.times) - 1
	for ns := at.UnixNano(); i > 0 && p.times[i] > ns; {
		i--
	}
	return p.values[i*len(p.names)+value]
}

// sweep forgets objects without requests for a long time.
func (h *history) sweep(now time.Time) {
	if now.Sub(h.swept) < historyKept/10 {
		return
	}
	h.swept = now
	maps.DeleteFunc(h.objects, func(_ string, p *past) bool { return now.Sub(p.asked) > historyKept })
}

// forget forgets everything.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects = nil
}
