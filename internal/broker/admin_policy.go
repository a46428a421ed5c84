package broker

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/topology"
)

// PutPolicy sets a policy or operator policy and puts it in force (DL-4). A
// refusal is Invalid, with the management API's text (DL-4.3).
func (b *Broker) PutPolicy(vhost message.VHost, d topology.PolicyDecl, operator bool) (created bool, err error) {
	err = b.changePolicies(func() (affected topology.Affected, err error) {
		affected, created, err = b.state.PutPolicy(vhost, d, operator)
		return affected, err
	})
	return created, err
}

// DeletePolicy removes a policy or operator policy and says whether there was one.
func (b *Broker) DeletePolicy(vhost message.VHost, name string, operator bool) (existed bool, err error) {
	err = b.changePolicies(func() (affected topology.Affected, err error) {
		affected, existed, err = b.state.DeletePolicy(vhost, name, operator)
		return affected, err
	})
	return existed, err
}

// changePolicies makes one change at a time, settings of queues included: else
// an older change could reach a queue after a newer one.
func (b *Broker) changePolicies(f func() (topology.Affected, error)) error {
	b.policies.Lock()
	defer b.policies.Unlock()
	var affected topology.Affected
	err := b.change(func() (err error) {
		affected, err = f()
		return err
	})
	b.reconfigure(affected)
	return err
}
