package openapi

import (
	"crypto/sha256"
	"sync"
	"time"
)

// nonces are those of the requests that were let in lately. A request is good for no
// longer than its time is, so that is how long its nonce is remembered. A node that
// starts anew has forgotten them.
type nonces struct {
	mu    sync.Mutex // guards what follows
	used  map[nonceHash]struct{}
	order []usedNonce    // the oldest first
	of    map[string]int // how many each key has used; none is 0
}

// nonceHash stands for a key and a nonce of it, however long that is.
type nonceHash [sha256.Size]byte

type usedNonce struct {
	nonceHash
	key   string
	until time.Time
}

// maxNonces is how many are remembered of one key; when there are more within the time that they
// must be, requests with it are refused. That is 70 a second. Keys are the operator's, who knows how many there are.
const maxNonces = 1 << 17

// use takes a nonce of a key. One that was used is refused.
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
	// A request's time may be ahead of ours, and it is good as long again from then.
	n.order = append(n.order, usedNonce{h, key, now.Add(2 * maxSkew)})
	return nil
}
