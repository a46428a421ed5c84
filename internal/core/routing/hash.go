package routing

// fnv1a continues an FNV-1a hash over b. Written out because hash/fnv allocates and works through an interface.
func fnv1a[T string | []byte](h uint64, b T) uint64 {
	for i := range len(b) {
		h = (h ^ uint64(b[i])) * 1099511628211
	}
	return h
}

const fnvOffset = 14695981039346656037

// mix spreads every input bit over the result (the finaliser of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// hashKeys hashes all routing keys; a separator keeps ["a","b"] and ["ab"] apart.
func hashKeys(m *Message) uint64 {
	h := fnv1a(fnvOffset, m.Key)
	for _, key := range m.More {
		h = (h ^ 0xff) * 1099511628211 // 0xff is in no UTF-8 text
		h = fnv1a(h, key)
	}
	return mix(h)
}
