package auth

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"

	"bartleby.mq/internal/topology"
)

// Algorithm names how passwords are hashed, as definitions files do (BR-2.7).
type Algorithm string

// The algorithms. New passwords are hashed with SHA256; the others come with imports.
const (
	SHA256 Algorithm = "rabbit_password_hashing_sha256"
	SHA512 Algorithm = "rabbit_password_hashing_sha512"
	MD5    Algorithm = "rabbit_password_hashing_md5"
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

const saltSize = 4

// PasswordHash is a password that can be checked but not read: base64 of the salt and of the hash of salt and password.
// The zero value is of a user that cannot log in by password.
type PasswordHash struct {
	Hash      string // empty: no password
	Algorithm Algorithm
}

// HashPassword hashes a password with a salt that the caller has drawn at random. The empty password gives the zero
// hash: nobody logs in with it (BR-2.6).
func HashPassword(password string, salt [saltSize]byte) PasswordHash {
	if password == "" {
		return PasswordHash{Algorithm: SHA256}
	}
	return PasswordHash{
		Hash:      base64.StdEncoding.EncodeToString(SHA256.digest(salt[:], password)),
		Algorithm: SHA256,
	}
}

// ImportHash takes a hash as RabbitMQ exports it; an empty algorithm is SHA256. An unknown algorithm is Invalid.
func ImportHash(text string, a Algorithm) (PasswordHash, error) {
	if a == "" {
		a = SHA256
	}
	if a.newHash() == nil {
		return PasswordHash{}, topology.Refuse(topology.Invalid, "unknown hashing algorithm %s", a)
	}
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		return PasswordHash{}, topology.Refuse(topology.Invalid, "password_hash is not base64: %v", err)
	}
	return PasswordHash{Hash: text, Algorithm: a}, nil
}

// digest returns the salt followed by the hash. REQUIRES: a is known.
func (a Algorithm) digest(salt []byte, password string) []byte {
	h := a.newHash()
	h.Write(salt)
	h.Write([]byte(password))
	return h.Sum(append([]byte(nil), salt...))
}

// Matches says whether it is this password, in a time that does not depend on how much of it is right.
func (p PasswordHash) Matches(password string) bool {
	stored, err := base64.StdEncoding.DecodeString(p.Hash)
	if err != nil || len(stored) <= saltSize || password == "" || p.Algorithm.newHash() == nil {
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
func (e *LoginError) Error() string { return fmt.Sprintf("user '%s': %s", e.User, e.Reason) }

// LoginRefused is what a client is told whose login failed (BR-2.4).
func LoginRefused(mechanism string) error {
	return topology.Refuse(topology.AccessRefused,
		"Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
}

// decoy is checked for users there are not, so that the time of a refusal does not tell which names exist.
var decoy = HashPassword("decoy", [saltSize]byte{})

// Authenticate finds the user of the credentials. fromLoopback says where the client connects from, which matters for
// users that may not log in remotely (BR-2.6). The error is a *LoginError.
func (u *Users) Authenticate(c Credentials, fromLoopback bool) (*User, error) {
	user, ok := u.users[c.User]
	switch {
	case !ok:
		decoy.Matches(c.Password)
		return nil, &LoginError{c.User, "there is no such user"}
	case !c.Verified && !user.Password.Matches(c.Password):
		return nil, &LoginError{c.User, "the password is wrong"}
	case !fromLoopback && u.loopback[c.User]:
		return nil, &LoginError{c.User, "may log in from loopback addresses only"}
	}
	return user, nil
}
