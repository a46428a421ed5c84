package auth

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"

	"bartleby.mq/internal/core/topology"
)

// Algorithm names how passwords are hashed, as definitions files do (BR-2.7).
type Algorithm string

// The algorithms. Those but Argon2id are RabbitMQ's; MD5 comes with imports only.
const (
	SHA256   Algorithm = "rabbit_password_hashing_sha256"
	SHA512   Algorithm = "rabbit_password_hashing_sha512"
	MD5      Algorithm = "rabbit_password_hashing_md5"
	Argon2id Algorithm = "argon2id"
)

func (a Algorithm) newHash() hash.Hash {
	switch a {
	case SHA256, "":
		return sha256.New()
	case SHA512:
		return sha512.New()
	case MD5:
		return md5.New()
	}
	return nil
}

// saltSize is RabbitMQ's.
const saltSize = 4

// SaltSize is how many bytes of salt the algorithm wants.
func (a Algorithm) SaltSize() int {
	if a == Argon2id {
		return argonSalt
	}
	return saltSize
}

// PasswordHash is a password that can be checked but not read: base64 of the salt and of the hash of salt and password,
// or what argonHash writes. The zero value is of a user that cannot log in by password.
type PasswordHash struct {
	Hash      string // empty: no password
	Algorithm Algorithm
}

// Hash hashes a password with a salt that the caller has drawn at random, of the algorithm's size. The empty password
// gives a hash that nobody logs in with (BR-2.6).
func (a Algorithm) Hash(password string, salt []byte) PasswordHash {
	switch {
	case password == "":
		return PasswordHash{Algorithm: a}
	case a == Argon2id:
		return PasswordHash{argonHash(password, salt, argonDefault), a}
	}
	return PasswordHash{base64.StdEncoding.EncodeToString(a.digest(salt, password)), a}
}

// ImportHash takes a hash as RabbitMQ exports it, or as we do; an empty algorithm is SHA256. An unknown algorithm is
// Invalid.
func ImportHash(text string, a Algorithm) (PasswordHash, error) {
	if a == "" {
		a = SHA256
	}
	switch {
	case a == Argon2id:
		if _, _, _, err := parseArgon(text); err != nil && text != "" {
			return PasswordHash{}, topology.Refuse(topology.Invalid, "password_hash is not one of argon2id: %v", err)
		}
	case a.newHash() == nil:
		return PasswordHash{}, topology.Refuse(topology.Invalid, "unknown hashing algorithm %s", a)
	default:
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return PasswordHash{}, topology.Refuse(topology.Invalid, "password_hash is not base64: %v", err)
		}
	}
	return PasswordHash{Hash: text, Algorithm: a}, nil
}

// digest returns the salt followed by the hash. REQUIRES: a is one of RabbitMQ's.
func (a Algorithm) digest(salt []byte, password string) []byte {
	h := a.newHash()
	h.Write(salt)
	h.Write([]byte(password))
	return h.Sum(append([]byte(nil), salt...))
}

// Matches says whether it is this password, in a time that does not depend on how much of it is right.
func (p PasswordHash) Matches(password string) bool {
	if password == "" {
		return false
	}
	if p.Algorithm == Argon2id {
		return matchesArgon(p.Hash, password)
	}
	stored, err := base64.StdEncoding.DecodeString(p.Hash)
	if err != nil || len(stored) <= saltSize || p.Algorithm.newHash() == nil {
		return false
	}
	return subtle.ConstantTimeCompare(stored, p.Algorithm.digest(stored[:saltSize], password)) == 1
}

// LoginError says why a login failed. The client is told only that it did (BR-2.4); the reason is for the log.
type LoginError struct {
	User   string
	Reason string
}

// Error returns user and reason.
func (e *LoginError) Error() string {
	return fmt.Sprintf("user '%s': %s", LoggedName(e.User), e.Reason)
}

// LoggedName is a name that a client has said, as the log shows it. Nobody's is longer, and whoever says one may
// fill the log with it.
func LoggedName(said string) string { return said[:min(len(said), maxLoggedName)] }

const maxLoggedName = 255 // bytes

// LoginRefused is what a client is told whose login failed (BR-2.4).
func LoginRefused(mechanism string) error {
	return topology.Refuse(topology.AccessRefused,
		"Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
}

// Decoys are checked where there is no hash to check, so that the time of a refusal does not tell which names exist.
var (
	decoy      = SHA256.Hash("decoy", make([]byte, saltSize))
	argonDecoy = PasswordHash{argonEncode(make([]byte, argonSalt), make([]byte, argonSize), argonDefault), Argon2id}
)

// Candidate is whom somebody says to be, to be checked with nothing locked: a check may take long. It never changes.
type Candidate struct {
	name     string
	user     *User // nil: there is none
	loopback bool  // may log in from loopback only
	slow     bool  // some check takes as long as one of Argon2id, so all do
}

// Candidate finds the user of a name, if there is one. slow says that new passwords are hashed by Argon2id.
func (u *Users) Candidate(name string, slow bool) Candidate {
	return Candidate{name, u.users[name], u.loopback[name], slow || u.argon > 0}
}

// Slow says whether a check takes so long that many at once must not be made.
func (c Candidate) Slow() bool { return c.slow }

// Hash is what the candidate's password is checked by; "" if there is nothing.
func (c Candidate) Hash() string {
	if c.user == nil {
		return ""
	}
	return c.user.Password.Hash
}

// Check says whether these are the credentials of the candidate. fromLoopback says where the client connects from, which
// matters for users that may not log in remotely (BR-2.6). The error is a *LoginError.
func (c Candidate) Check(given Credentials, fromLoopback bool) (*User, error) {
	if !given.Verified && !c.matches(given.Password) {
		if c.user == nil {
			return nil, &LoginError{c.name, "there is no such user"}
		}
		return nil, &LoginError{c.name, "the password is wrong"}
	}
	return c.Known(fromLoopback)
}

// Known is Check for somebody who is proven already.
func (c Candidate) Known(fromLoopback bool) (*User, error) {
	switch {
	case c.user == nil:
		return nil, &LoginError{c.name, "there is no such user"}
	case !fromLoopback && c.loopback:
		return nil, &LoginError{c.name, "may log in from loopback addresses only"}
	}
	return c.user, nil
}

// matches takes as long for a user there is not, or one without a password, as for others.
func (c Candidate) matches(password string) bool {
	stored := decoy
	real := c.user != nil && c.user.Password.Hash != ""
	if real {
		stored = c.user.Password
	}
	if c.slow && stored.Algorithm != Argon2id {
		argonDecoy.Matches(password)
	}
	return stored.Matches(password) && real
}

// Authenticate finds the user of the credentials; see Candidate.
func (u *Users) Authenticate(given Credentials, fromLoopback bool) (*User, error) {
	return u.Candidate(given.User, false).Check(given, fromLoopback)
}
