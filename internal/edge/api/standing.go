package api

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"bartleby.mq/internal/core/auth"
)

// What was true at a login may not be true any more: of the node's own accounts that is known at once, of others only the backend
// knows it. So it is asked again for whatever lives longer than a request: sessions, and requests that go on for long.

const (
	// askAgain is how long an answer of a login backend holds. Before a change a session asks anew.
	askAgain = time.Minute
	// lookAgain is how often a request that goes on looks whether the account is as it was.
	lookAgain = 250 * time.Millisecond
)

var (
	overdue   = &failure{http.StatusServiceUnavailable, "unavailable", "whether you may still log in cannot be known: the login backend gives no answer"}
	outOfDate = &failure{http.StatusUnauthorized, "not_authorized", "your account, its password or its tags are not what they were: log in again"}
)

// proof is how a request has proved who its user is, and when that was last asked.
type proof struct {
	password      string // "" if nothing but the node's accounts knows the user
	asked, looked time.Time
}

// sealed is a password that a session needs to ask again, readable only with the secret of its cookie, which the node does not keep.
func sealed(secret, password string) []byte {
	return sealing(secret).Seal(nil, nil, []byte(password), nil)
}

// opened is the password in sealed.
func opened(secret string, sealed []byte) string {
	password, err := sealing(secret).Open(nil, nil, sealed, nil)
	if err != nil { // it was found by this secret
		return ""
	}
	return string(password)
}

func sealing(secret string) cipher.AEAD {
	key := sha256.Sum256([]byte("password of a session\x00" + secret))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("api: " + err.Error()) // the key has a right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("api: " + err.Error())
	}
	return aead
}

// askAgain says why the user may not go on, nil if what was true at the login still is.
func (r *request) askAgain() *failure {
	err := r.s.b.AskAgain(r.Context(), r.identity, auth.Credentials{User: r.user, Password: r.proof.password}, r.from())
	if refused := (*auth.LoginError)(nil); errors.As(err, &refused) {
		r.s.Logger.Warn("a login that was accepted is refused now", "peer", r.RemoteAddr, "error", err)
		return outOfDate
	}
	if err != nil {
		r.s.Logger.Warn("a login cannot be asked again", "peer", r.RemoteAddr, "error", err)
		return overdue
	}
	return nil
}

// goesOn says why a request that takes long must end, nil if it may go on. It may be called often.
func (r *request) goesOn() *failure {
	now := time.Now()
	switch {
	case r.local || now.Sub(r.proof.looked) < lookAgain:
		return nil
	case !r.s.b.StillStands(r.identity):
		return outOfDate
	}
	r.proof.looked = now
	if now.Sub(r.proof.asked) < askAgain {
		return nil
	}
	r.proof.asked = now
	return r.askAgain()
}
