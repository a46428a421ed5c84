package api

import (
	"sync"
	"time"
)

// rates remembers counters of earlier requests, from which it tells what happens
// a second. Nothing is sampled while nobody asks.
type rates struct {
	mu      sync.Mutex
	objects map[string]*sample
	swept   time.Time
}

// sample is the counters of one object at one moment, and the rates up to then.
type sample struct {
	at     time.Time
	counts map[string]float64
	rates  map[string]float64
}

const (
	rateInterval = 5 * time.Second // RabbitMQ's interval of statistics (BR-15.16)
	rateKept     = time.Minute     // objects nobody asked about for so long are forgotten
)

// of returns the rates of an object's counters in events a second.
func (r *rates) of(object string, now time.Time, counts map[string]float64) map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	old := r.objects[object]
	if old == nil {
		if r.objects == nil {
			r.objects = map[string]*sample{}
		}
		r.objects[object] = &sample{at: now, counts: counts}
		return nil
	}
	passed := now.Sub(old.at)
	if passed < rateInterval {
		return old.rates
	}
	next := &sample{at: now, counts: counts, rates: make(map[string]float64, len(counts))}
	for name, n := range counts {
		next.rates[name] = (n - old.counts[name]) / passed.Seconds()
	}
	r.objects[object] = next
	return next.rates
}

func (r *rates) sweep(now time.Time) {
	if now.Sub(r.swept) < rateKept {
		return
	}
	r.swept = now
	for name, s := range r.objects {
		if now.Sub(s.at) > rateKept {
			delete(r.objects, name)
		}
	}
}

// put sets counters in an object, each with its rate as NAME_details (BR-15.13).
func (r *rates) put(into map[string]any, object string, counts map[string]float64) {
	now := r.of(object, time.Now(), counts)
	for name, n := range counts {
		into[name] = int64(n)
		into[name+"_details"] = map[string]any{"rate": now[name]}
	}
}
