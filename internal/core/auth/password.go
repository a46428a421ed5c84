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

// Algorithm names a hashing algorithm for passwords, as definitions files do (BR-2.7).
type Algorithm string

// The algorithms. All except Argon2id are RabbitMQ's. MD5 is accepted only for imported hashes.
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

// saltSize is the size of RabbitMQ's salts in bytes.
const saltSize = 4

// SaltSize is the size of the algorithm's salts in bytes.
func (a Algorithm) SaltSize() int {
	if a == Argon2id {
		return argonSalt
	}
	return saltSize
}

// PasswordHash is a password that can be checked but not read: base64 of the salt and the hash of salt and password,
// or the form of argonHash. A user with the zero value cannot log in by password.
type PasswordHash struct {
	Hash      string // empty: no password
	Algorithm Algorithm
}

// Hash hashes a password with a random salt from the caller, of SaltSize bytes. The empty password gets a hash that
// no login matches (BR-2.6).
func (a Algorithm) Hash(password string, salt []byte) PasswordHash {
	switch {
	case password == "":
		return PasswordHash{Algorithm: a}
	case a == Argon2id:
		return PasswordHash{argonHash(password, salt, argonDefault), a}
	}
	return PasswordHash{base64.StdEncoding.EncodeToString(a.digest(salt, password)), a}
}

// ImportHash accepts a hash as RabbitMQ or this broker exports it. An empty algorithm means SHA256; an unknown one is
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

// Matches says whether the password is right. Its time does not depend on how much of the password is right.
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

// LoopbackOnly is the Reason of a LoginError for an account that may not log in from elsewhere (BR-2.6).
const LoopbackOnly = "may log in from loopback addresses only"

// LoginError says why a login failed. The reason is for the log; the client learns only that the login failed
// (BR-2.4).
type LoginError struct {
	User   string
	Reason string
}

// Error returns user and reason.
func (e *LoginError) Error() string {
	return fmt.Sprintf("user '%s': %s", LoggedName(e.User), e.Reason)
}

// LoggedName is a name from a client in the form for the log. It is cut to the longest name that a user may have,
// because any client could fill the log with it.
func LoggedName(said string) string { return said[:min(len(said), maxLoggedName)] }

const maxLoggedName = 255 // bytes

// LoginRefused is the error that the client gets for a failed login (BR-2.4).
func LoginRefused(mechanism string) error {
	return topology.Refuse(topology.AccessRefused,
		"Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
}

// Decoys are checked if there is no hash to check, so that the time of a refusal does not show which names exist.
var (
	decoy      = SHA256.Hash("decoy", make([]byte, saltSize))
	argonDecoy = PasswordHash{argonEncode(make([]byte, argonSalt), make([]byte, argonSize), argonDefault), Argon2id}
)

// Candidate is the user that a client claims to be. It is checked with nothing locked, because a check may take long.
// It never changes.
type Candidate struct {
	name     string
	user     *User // nil: there is no such user
	loopback bool  // may log in from loopback addresses only
	slow     bool  // some user's check takes as long as Argon2id, so every check does
}

// Candidate returns the candidate for a name. slow says that new passwords are hashed with Argon2id.
func (u *Users) Candidate(name string, slow bool) Candidate {
	return Candidate{name, u.users[name], u.loopback[name], slow || u.argon > 0}
}

// Slow says whether a check takes so long that the caller must limit how many run at a time.
func (c Candidate) Slow() bool { return c.slow }

// Hash is the hash that the candidate's password is checked against, "" if there is none.
func (c Candidate) Hash() string {
	if c.user == nil {
		return ""
	}
	return c.user.Password.Hash
}

// Check checks the candidate's credentials. fromLoopback says that the client connects from a loopback address, which
// some users must (BR-2.6). The error is a *LoginError.
func (c Candidate) Check(given Credentials, fromLoopback bool) (*User, error) {
	if !given.Verified && !c.matches(given.Password) {
		if c.user == nil {
			return nil, &LoginError{c.name, "there is no such user"}
		}
		return nil, &LoginError{c.name, "the password is wrong"}
	}
	return c.Known(fromLoopback)
}

// Known is Check for a client that is already authenticated.
func (c Candidate) Known(fromLoopback bool) (*User, error) {
	switch {
	case c.user == nil:
		return nil, &LoginError{c.name, "there is no such user"}
	case !fromLoopback && c.loopback:
		return nil, &LoginError{c.name, LoopbackOnly}
	}
	return c.user, nil
}

// matches takes as long for a missing user, and for one without a password, as for any other.
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

// Authenticate checks credentials and returns their user; see Candidate.
func (u *Users) Authenticate(given Credentials, fromLoopback bool) (*User, error) {
	return u.Candidate(given.User, false).Check(given, fromLoopback)
}
