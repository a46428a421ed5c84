package server

import (
	"testing"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/run/broker"
)

// What the configuration says of the profile apsaramq where nothing is said is what the broker does by itself.
func TestApsaraDefaults(t *testing.T) {
	c := config.Default()
	if got := apsara(&c.ApsaraMQ); got != broker.DefaultApsaraMQ() {
		t.Errorf("the configuration comes to %+v, the broker's own is %+v", got, broker.DefaultApsaraMQ())
	}
}
