package auth

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// argonParameters are the cost of a hash.
type argonParameters struct {
	memory uint32 // KiB
	passes uint32
	lanes  uint8
}

// argonDefault is the minimum that OWASP's Password Storage Cheat Sheet recommends for Argon2id: about 20 ms and 19
// MiB on a present server.
var argonDefault = argonParameters{memory: 19 << 10, passes: 2, lanes: 1}

const (
	argonSalt = 16 // bytes
	argonSize = 32
)

// Limits of imported hashes: each login costs this much.
const (
	argonMaxMemory = 256 << 10 // KiB
	argonMaxPasses = 16
	argonMaxLanes  = 16
	argonMaxBytes  = 128 // of the salt and of the hash
)

// argonHash hashes a password and writes it in the usual form: $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH.
func argonHash(password string, salt []byte, p argonParameters) string {
	return argonEncode(salt, argon2.IDKey([]byte(password), salt, p.passes, p.memory, p.lanes, argonSize), p)
}

func argonEncode(salt, sum []byte, p argonParameters) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.passes, p.lanes, b64(salt), b64(sum))
}

var errArgon = errors.New("not of the form $argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH")

// parseArgon parses a hash in that form.
func parseArgon(text string) (p argonParameters, salt, sum []byte, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != string(Argon2id) || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return p, nil, nil, errArgon
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.passes, &p.lanes); err != nil {
		return p, nil, nil, errArgon
	}
	if parts[3] != fmt.Sprintf("m=%d,t=%d,p=%d", p.memory, p.passes, p.lanes) {
		return p, nil, nil, errArgon
	}
	if salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return p, nil, nil, errArgon
	}
	if sum, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return p, nil, nil, errArgon
	}
	switch {
	case len(salt) < 8 || len(sum) < 16 || len(salt) > argonMaxBytes || len(sum) > argonMaxBytes:
		return p, nil, nil, errors.New("salt or hash has a wrong size")
	case p.memory == 0 || p.passes == 0 || p.lanes == 0 || p.memory > argonMaxMemory || p.passes > argonMaxPasses || p.lanes > argonMaxLanes:
		return p, nil, nil, fmt.Errorf("its cost is above the limit m=%d,t=%d,p=%d", argonMaxMemory, argonMaxPasses, argonMaxLanes)
	}
	return p, salt, sum, nil
}

func matchesArgon(text, password string) bool {
	p, salt, sum, err := parseArgon(text)
	if err != nil {
		return false
	}
	return subtle.ConstantTimeCompare(sum, argon2.IDKey([]byte(password), salt, p.passes, p.memory, p.lanes, uint32(len(sum)))) == 1
}
