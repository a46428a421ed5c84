package index

// alarm is a moment at which a page is to be looked at.
type alarm struct {
	at     int64
	number uint64 // of the page
}

func (a alarm) before(b alarm) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

// alarms are a heap, the first on top. Alarms are not taken out when the page
// gets another moment: who takes one looks whether it still holds.
type alarms []alarm

// keepAlarms is how many alarms of no use a heap may have beside one for each page.
const keepAlarms = 16

// first is the moment of the first one.
func (a alarms) first() int64 {
	if len(a) == 0 {
		return never
	}
	return a[0].at
}

func (a *alarms) push(x alarm) {
	h := append(*a, x)
	*a = h
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !x.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
}

// pop takes the first one. REQUIRES: there is one.
func (a *alarms) pop() alarm {
	h := *a
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*a = h
	if len(h) > 0 {
		h.sink(0, last)
	}
	return top
}

// sink puts x at i or below.
func (a alarms) sink(i int, x alarm) {
	for {
		down := 2*i + 1
		if down >= len(a) {
			break
		}
		if down+1 < len(a) && a[down+1].before(a[down]) {
			down++
		}
		if !a[down].before(x) {
			break
		}
		a[i] = a[down]
		i = down
	}
	a[i] = x
}

// heapify makes a heap of alarms in any order.
func (a alarms) heapify() {
	for i := len(a)/2 - 1; i >= 0; i-- {
		a.sink(i, a[i])
	}
}
