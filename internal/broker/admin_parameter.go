package broker

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/topology"
)

// PutParameter keeps a run-time parameter for tools that ask for it.
func (b *Broker) PutParameter(p topology.Parameter) (created bool, err error) {
	err = b.change(func() (err error) {
		created, err = b.state.PutParameter(p)
		return err
	})
	return created, err
}

// DeleteParameter removes a parameter and says whether there was one.
func (b *Broker) DeleteParameter(vhost message.VHost, component, name string) (existed bool, err error) {
	err = b.change(func() (err error) {
		existed, err = b.state.DeleteParameter(vhost, component, name)
		return err
	})
	return existed, err
}

// PutGlobalParameter keeps a parameter of the whole broker.
func (b *Broker) PutGlobalParameter(p topology.GlobalParameter) (created bool, err error) {
	err = b.change(func() (err error) {
		created, err = b.state.PutGlobalParameter(p)
		return err
	})
	return created, err
}

// DeleteGlobalParameter removes a parameter and says whether there was one.
func (b *Broker) DeleteGlobalParameter(name string) (existed bool, err error) {
	err = b.change(func() error {
		existed = b.state.DeleteGlobalParameter(name)
		return nil
	})
	return existed, err
}
