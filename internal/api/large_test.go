package api_test

import (
	"fmt"
	"testing"
	"time"

	"bartleby.mq/internal/auth"
)

// Whose permissions are missing is found in linear time.
func TestVeryManyUsersAreListedWithoutPermissions(t *testing.T) {
	n := start(t)
	const many = 3000
	for i := range many {
		name := fmt.Sprint("user", i)
		if _, err := n.b.PutUser(name, auth.PasswordHash{}, nil); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		if _, err := n.b.PutPermission(auth.Permission{VHost: "/", User: name}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	list := n.must("GET", "/users/without-permissions", "").list(t)
	if took := time.Since(began); len(list) != 1 || list[0]["name"] != "user0" || took > time.Second {
		t.Errorf("%d users of %d after %v", len(list), many, took)
	}
}
