package auth

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/mutation"
)

var longSalt = []byte("0123456789abcdef")

// cheap is a hash that costs little to check.
func cheap(password string) PasswordHash {
	return PasswordHash{argonHash(password, longSalt, argonParameters{64, 1, 1}), Argon2id}
}

// BR-2.7: beside RabbitMQ's, passwords can be hashed by Argon2id.
func TestArgon(t *testing.T) {
	h := Argon2id.Hash("pw", longSalt)
	if !strings.HasPrefix(h.Hash, "$argon2id$v=19$m=19456,t=2,p=1$") || !h.Matches("pw") || h.Matches("pW") || h.Matches("") {
		t.Errorf("the hash is %+v", h)
	}
	// By the reference implementation: echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1
	reference := PasswordHash{"$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", Argon2id}
	if !reference.Matches("password") {
		t.Error("a hash of the reference implementation does not match")
	}
	if h := Argon2id.Hash("", longSalt); h.Matches("") || h.Hash != "" {
		t.Errorf("the empty password gives %+v", h)
	}
}

func TestArgonImport(t *testing.T) {
	good := cheap("pw").Hash
	for text, ok := range map[string]bool{
		good: true, "": true, good + "$": false, "kI3GCqW5": false,
		strings.Replace(good, "v=19", "v=16", 1): false, strings.Replace(good, "argon2id", "argon2i", 1): false,
		strings.Replace(good, "m=64", "m=999999999", 1): false, strings.Replace(good, "t=1", "t=100", 1): false,
		strings.Replace(good, "t=1", "t=0", 1): false, strings.Replace(good, "m=64", "m=-1", 1): false, strings.Replace(good, "m=64", "m=64 ", 1): false,
		"$argon2id$v=19$m=64,t=1,p=1$AA$AA": false,
	} {
		h, err := ImportHash(text, Argon2id)
		if (err == nil) != ok || ok && text != "" && !h.Matches("pw") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Where one check takes long all do, so that time does not tell who there is.
func TestChecksTakeAsLong(t *testing.T) {
	u := newUsers(t)
	if u.Candidate("u", false).Slow() || !u.Candidate("u", true).Slow() {
		t.Error("slow is not what it should be")
	}
	_, _ = u.PutUser("a", cheap("pw"), nil)
	for _, name := range []string{"u", "a", "missing"} {
		if !u.Candidate(name, false).Slow() {
			t.Errorf("a check of %s is not slow", name)
		}
	}
	if _, err := u.Authenticate(Credentials{User: "a", Password: "pw"}, true); err != nil {
		t.Error(err)
	}
	if _, err := u.Authenticate(Credentials{User: "u", Password: "pw"}, true); err != nil {
		t.Error(err)
	}
	v, err := Load(mutation.All(u.TakeChanges()))
	if err != nil || !v.Candidate("missing", false).Slow() {
		t.Errorf("after a restart checks are not slow, %v", err)
	}
	_, _ = u.PutUser("a", SHA256.Hash("pw", salt[:]), nil)
	if u.Candidate("u", false).Slow() {
		t.Error("without such a hash checks are still slow")
	}
	_, _ = u.PutUser("a", cheap("pw"), nil)
	u.DeleteUser("a")
	if u.Candidate("u", false).Slow() {
		t.Error("without such a user checks are still slow")
	}
}

// BR-2.7: a new password may be hashed by SHA-512 too.
func TestSHA512(t *testing.T) {
	if h := SHA512.Hash("pw", salt[:]); !h.Matches("pw") || h.Matches("x") || h.Algorithm != SHA512 {
		t.Errorf("the hash is %+v", h)
	}
}

// Hashes that come from outside do no harm.
func FuzzImportHash(f *testing.F) {
	f.Add(cheap("pw").Hash)
	f.Add("$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if p, salt, sum, err := parseArgon(text); err == nil {
			if p.memory > argonMaxMemory || p.passes > argonMaxPasses || len(salt) > argonMaxBytes || len(sum) > argonMaxBytes {
				t.Errorf("%q costs too much", text)
			}
		}
	})
}
