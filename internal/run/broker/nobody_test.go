package broker

import (
	"context"
	"net"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
)

// No client is let in with the name "": as a setter it means the operator, who may do everything. An import may have
// made such a user.
func TestNobodyIsCalledNothing(t *testing.T) {
	c := open(t, Options{})
	if _, err := c.b.By("").Do(declare.PutUser{Name: "", Password: hashPassword(auth.SHA256, "p"), Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.b.Authenticate(context.Background(), auth.Credentials{User: "", Password: "p"}, net.IPv4(127, 0, 0, 1)); err == nil {
		t.Error("a user without a name is let in")
	}
}
