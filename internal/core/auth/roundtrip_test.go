package auth

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// told is all that there is of accounts, as text.
func told(u *Users) (all []string) {
	for _, user := range SortUsers(u.List()) {
		all = append(all, fmt.Sprintf("user %q %q %q %q %v", user.Name, user.Password.Hash, user.Password.Algorithm, user.Tags, user.Limits()))
	}
	for _, p := range SortPermissions(u.Permissions()) {
		all = append(all, fmt.Sprintf("permission %q", []string{string(p.VHost), p.User, p.Configure, p.Write, p.Read}))
	}
	for _, p := range SortTopicPermissions(u.TopicPermissions()) {
		all = append(all, fmt.Sprintf("topic permission %q", []string{string(p.VHost), p.User, string(p.Exchange), p.Write, p.Read}))
	}
	return append(all, fmt.Sprint(u.argon))
}

// Whatever accounts and permissions are set are the same after a restart (BR-14.1).
func TestBR_14_1_EveryAccountIsReadBackEqual(t *testing.T) {
	texts := rapid.SampledFrom([]string{"", "u", "a/b %", "..", "\x00", "\xff", "<&>\u2028\"\\", "null", "(", "{username}", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("é", 127)})
	text := texts.Filter(func(s string) bool { return s != "\xff" }) // what comes as JSON, or out of a configuration that is checked
	integers := rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt32, 1<<53 + 1, math.MaxInt64, math.MinInt64})
	rapid.Check(t, func(t *rapid.T) {
		u := New()
		for range rapid.IntRange(1, 20).Draw(t, "accounts") {
			name, vhost := texts.Draw(t, "name"), message.VHost(text.Draw(t, "vhost"))
			var err error // a refusal changes nothing, which the comparison sees
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0, 1:
				password := PasswordHash{text.Draw(t, "hash"), rapid.SampledFrom([]Algorithm{"", SHA256, Argon2id}).Draw(t, "algorithm")}
				_, err = u.PutUser(name, password, []Tag{text.Draw(t, "tag"), Administrator}[:rapid.IntRange(0, 2).Draw(t, "tags")])
			case 2:
				err = u.SetLimits(name, map[Limit]any{rapid.SampledFrom([]Limit{MaxConnections, MaxChannels}).Draw(t, "limit"): integers.Draw(t, "value")})
			case 3:
				_, err = u.PutPermission(Permission{VHost: vhost, User: name, Configure: text.Draw(t, "configure"), Write: text.Draw(t, "write"), Read: text.Draw(t, "read")})
			case 4:
				_, err = u.PutTopicPermission(TopicPermission{VHost: vhost, User: name, Exchange: message.ExchangeName(texts.Draw(t, "exchange")), Write: text.Draw(t, "write"), Read: text.Draw(t, "read")})
			}
			_ = err
		}
		store := map[string][]byte{}
		for key, value := range mutation.All(u.TakeChanges()) {
			if store[string(key)] = value; value == nil {
				delete(store, string(key))
			}
		}
		back, err := Load(func(yield func(k, v []byte) bool) {
			for k, v := range store {
				if !yield([]byte(k), v) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if wrote, read := told(u), told(back); !reflect.DeepEqual(wrote, read) {
			t.Fatalf("was %.1500q\nis  %.1500q", wrote, read)
		}
	})
}

// FuzzLoad: whatever stands in the store, reading it is an error or accounts.
func FuzzLoad(f *testing.F) {
	f.Add(userKey("u"), `{"v":1,"name":"u","password_hash":"x","hashing_algorithm":"rabbit_password_hashing_sha256","tags":["administrator"],"limits":{"max-channels":1}}`)
	f.Add(permissionKey(grantName{"v", "u"}), `{"v":1,"configure":"(","write":".*","read":""}`)
	f.Add(topicPermissionKey(grantName{"v", "u"}, "x"), `{"v":1,"write":"{username}","read":"["}`)
	f.Fuzz(func(t *testing.T, key, value string) {
		u, err := Load(func(yield func(k, v []byte) bool) { yield([]byte(key), []byte(value)) })
		if err == nil {
			told(u)
		}
	})
}

// A start reads very many topic permissions of one user in the time that it takes for those of many users.
func TestVeryManyTopicPermissionsAreRead(t *testing.T) {
	const many = 10_000
	load := func(user func(i int) string) time.Duration {
		u := New()
		for i := range many {
			p := topicPermissionRecord{Version: recordVersion, VHost: "/", User: user(i), Exchange: message.ExchangeName(fmt.Sprint(i)), Write: "a", Read: "b"}
			u.log.Put(topicPermissionKey(grantName{p.VHost, p.User}, p.Exchange), p)
		}
		began := time.Now()
		u, err := Load(mutation.All(u.TakeChanges()))
		if err != nil || len(u.TopicPermissions()) != many {
			t.Fatal(len(u.TopicPermissions()), err)
		}
		return time.Since(began)
	}
	var ofMany, ofOne time.Duration
	for range 5 { // one that had the machine to itself is enough
		if ofMany, ofOne = load(func(i int) string { return fmt.Sprint(i) }), load(func(int) string { return "u" }); ofOne <= 4*ofMany {
			return
		}
	}
	t.Errorf("those of one user take %v, those of many %v", ofOne, ofMany)
}
