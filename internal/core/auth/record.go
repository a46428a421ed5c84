package auth

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// KeyPrefix is the prefix of all keys of this package in the store.
const KeyPrefix = "auth/"

// recordVersion is in every record; a reader refuses newer records.
const recordVersion = 1

const (
	userKind            = KeyPrefix + "user"
	permissionKind      = KeyPrefix + "permission"
	topicPermissionKind = KeyPrefix + "topic-permission"
)

type userRecord struct {
	Version   int             `json:"v"`
	Name      string          `json:"name"`
	Hash      string          `json:"password_hash"`
	Algorithm Algorithm       `json:"hashing_algorithm"`
	Tags      []Tag           `json:"tags,omitempty"`
	Limits    map[Limit]int64 `json:"limits,omitempty"`
}

type permissionRecord struct {
	Version   int           `json:"v"`
	VHost     message.VHost `json:"vhost"`
	User      string        `json:"user"`
	Configure string        `json:"configure"`
	Write     string        `json:"write"`
	Read      string        `json:"read"`
}

type topicPermissionRecord struct {
	Version  int                  `json:"v"`
	VHost    message.VHost        `json:"vhost"`
	User     string               `json:"user"`
	Exchange message.ExchangeName `json:"exchange"`
	Write    string               `json:"write"`
	Read     string               `json:"read"`
}

func userKey(name string) string { return mutation.Key(userKind, name) }

func permissionKey(g grantName) string { return mutation.Key(permissionKind, string(g.vhost), g.user) }

func topicPermissionKey(g grantName, x message.ExchangeName) string {
	return mutation.Key(topicPermissionKind, string(g.vhost), g.user, string(x))
}

func (u *Users) logUser(user *User) {
	u.log.Put(userKey(user.Name), userRecord{
		recordVersion, user.Name, user.Password.Hash, user.Password.Algorithm, user.Tags, user.limits,
	})
}

// Load rebuilds the accounts from the pairs in the store, in any order. It skips pairs of other packages. An error names the
// unreadable key.
func Load(pairs iter.Seq2[[]byte, []byte], loopbackOnly ...string) (*Users, error) {
	u := New(loopbackOnly...)
	for key, value := range pairs {
		if !strings.HasPrefix(string(key), KeyPrefix) {
			continue
		}
		if err := u.load(string(key), value); err != nil {
			return nil, fmt.Errorf("auth: record %q: %w", key, err)
		}
	}
	return u, nil
}

func (u *Users) load(key string, value []byte) error {
	kind := key[:len(KeyPrefix)+max(strings.IndexByte(key[len(KeyPrefix):], '/'), 0)]
	var version struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &version); err != nil {
		return err
	}
	if version.Version != recordVersion {
		return fmt.Errorf("version %d, this program reads version %d", version.Version, recordVersion)
	}
	// Earlier versions accepted names that are not UTF-8, for which JSON has no form: the record has replacement
	// characters, and an account whose name differs from its key could not be deleted.
	parts, _ := mutation.Parts(kind, key)
	switch kind {
	case userKind:
		var r userRecord
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		if len(parts) == 1 {
			r.Name = parts[0]
		}
		u.set(&User{
			Name: r.Name, Password: PasswordHash{r.Hash, r.Algorithm}, Tags: slices.Clone(r.Tags), limits: maps.Clone(r.Limits), account: new(account),
		})
	case permissionKind:
		var r permissionRecord
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		if len(parts) == 2 {
			r.VHost, r.User = message.VHost(parts[0]), parts[1]
		}
		u.addPermission(Permission{VHost: r.VHost, User: r.User, Configure: r.Configure, Write: r.Write, Read: r.Read})
	case topicPermissionKind:
		var r topicPermissionRecord
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		if len(parts) == 3 {
			r.VHost, r.User, r.Exchange = message.VHost(parts[0]), parts[1], message.ExchangeName(parts[2])
		}
		u.addTopicPermission(TopicPermission{VHost: r.VHost, User: r.User, Exchange: r.Exchange, Write: r.Write, Read: r.Read})
	default:
		return fmt.Errorf("unknown kind")
	}
	return nil
}
