package index

import "bartleby.mq/internal/core/message"

// In tests every frame of the journal says what its queues were after it, so that a
// recovery that comes to something else is found where it happens and not where
// it shows. What is summed up is what the journal tells exactly: which entries
// there are, of which size, with which history, and which are held.

// StateHash is the sum over the logged entries; 0 unless Pages.Hash is set.
func (ix *Index) StateHash() uint64 { return ix.hash }

// mixIn adds an entry to the sum, or takes it out, which is adding it times -1.
func (ix *Index) mixIn(sign uint64, id ID, size uint32, history message.Ref) {
	h := mix(uint64(id)) + mix(uint64(size)+1<<40)
	if history != 0 {
		for _, b := range ix.pages.Hash(history) {
			h = mix(h + uint64(b))
		}
	}
	ix.hash += sign * mix(h)
}

// minus is the sign of what is taken out.
const minus = ^uint64(0)

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
