package admission

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Verified remembers which passwords were right a moment ago, so that a client that sends
// its password with every request does not cost a slow hash each time. It keeps no
// passwords: a mark is a hash of the password and of the stored hash. When the stored hash
// is replaced, the mark no longer matches.
type Verified struct {
	ttl time.Duration
	now func() time.Time
	key [32]byte

	marks *lru.Cache[[sha256.Size]byte, time.Time] // until when each holds
}

// NewVerified remembers for ttl.
func NewVerified(ttl time.Duration) *Verified {
	v := &Verified{ttl: ttl, now: time.Now, marks: remembered[[sha256.Size]byte, time.Time]()}
	_, _ = rand.Read(v.key[:]) // never fails
	return v
}

func (v *Verified) mark(user, hash, password string) (m [sha256.Size]byte) {
	h := hmac.New(sha256.New, v.key[:])
	for _, s := range []string{user, hash, password} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	h.Sum(m[:0])
	return m
}

// Was says whether the password was recently right for this hash.
func (v *Verified) Was(user, hash, password string) bool {
	until, ok := v.marks.Get(v.mark(user, hash, password))
	return ok && v.now().Before(until)
}

// Is notes that the password is right for this hash.
func (v *Verified) Is(user, hash, password string) {
	v.marks.Add(v.mark(user, hash, password), v.now().Add(v.ttl))
}
