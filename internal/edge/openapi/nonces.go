package openapi

import (
	"crypto/sha256"
	"sync"
	"time"
)

// nonces holds the nonces of recently accepted requests. A request is valid only around its
// time, so a nonce is kept for that long. A restart loses them.
type nonces struct {
	mu    sync.Mutex // guards what follows
	used  map[nonceHash]struct{}
	order []usedNonce    // the oldest first
	of    map[string]int // number of nonces by access key; never 0
}

// nonceHash identifies an access key and its nonce, however long.
type nonceHash [sha256.Size]byte

type usedNonce struct {
	nonceHash
	key   string
	until time.Time
}

// maxNonces is how many nonces of one access key are kept; a key that uses more within their lifetime is
// refused. That is 70 requests a second. The operator decides how many keys there are.
const maxNonces = 1 << 17

// use takes a nonce of a key. It refuses a used nonce.
func (n *nonces) use(key, nonce string, now time.Time) *refusal {
	h := nonceHash(sha256.Sum256([]byte(key + "\x00" + nonce)))
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.order) > 0 && !now.Before(n.order[0].until) {
		oldest := &n.order[0]
		delete(n.used, oldest.nonceHash)
		if n.of[oldest.key]--; n.of[oldest.key] == 0 {
			delete(n.of, oldest.key)
		}
		n.order = n.order[1:]
	}
	if _, again := n.used[h]; again {
		return nonceUsed
	}
	if n.of[key] >= maxNonces {
		return tooMany
	}
	if n.used == nil {
		n.used, n.of = map[nonceHash]struct{}{}, map[string]int{}
	}
	n.used[h] = struct{}{}
	n.of[key]++
	// A request's time may be ahead of ours, and the request is valid that long after it.
	n.order = append(n.order, usedNonce{h, key, now.Add(2 * maxSkew)})
	return nil
}
