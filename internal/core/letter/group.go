package letter

import "strconv"

// Key is what the letters of a group share, within one virtual host.
type Key struct {
	Source string // the queue in which they died last
	Reason string
	Class  string // of the error
	Error  string // the pattern of its text
	Type   string // of the messages
}

// GroupID is the number of a group. It is the same in all releases, because notes about groups are stored under it.
type GroupID uint64

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// hash adds a text and the byte 0xff, which is in no UTF-8, so that texts cannot run into each other.
func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return (h ^ 0xff) * fnvPrime
}

// ID is the group's number in a virtual host.
func (k *Key) ID(vhost string) GroupID {
	h := uint64(fnvOffset)
	for _, s := range [...]string{vhost, k.Source, k.Reason, k.Class, k.Error, k.Type} {
		h = hash(h, s)
	}
	return GroupID(h)
}

// String is the number in base 36.
func (g GroupID) String() string { return strconv.FormatUint(uint64(g), 36) }

// ParseGroupID reads what String writes.
func ParseGroupID(s string) (GroupID, bool) {
	n, err := strconv.ParseUint(s, 36, 64)
	return GroupID(n), err == nil && GroupID(n).String() == s
}
