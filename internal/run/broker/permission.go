package broker

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// PutPermission sets what a user may do in a virtual host (BR-3.2). If the user or the virtual host does not exist,
// it is refused as Invalid (BR-15.9).
func (b *Broker) PutPermission(p auth.Permission) (created bool, err error) {
	err = b.change(func() error {
		if err := b.checkVHost(p.VHost); err != nil {
			return err
		}
		if err := b.checkUser(p.User); err != nil {
			return err
		}
		created, err = b.users.PutPermission(p)
		return err
	})
	b.parametersTouched()
	return created, err
}

func (b *Broker) checkVHost(name message.VHost) error {
	if _, ok := b.state.VHost(name); !ok {
		return b.notFound("virtual host", string(name))
	}
	return nil
}

func (b *Broker) checkUser(name string) error {
	if _, ok := b.users.User(name); !ok {
		return b.notFound("user", name)
	}
	return nil
}

// notFound is RabbitMQ's refusal, which does not say which of the two is missing, with what is.
func (b *Broker) notFound(what, name string) error {
	const text = "vhost_or_user_not_found"
	if b.Strict {
		return topology.Refuse(topology.Invalid, text)
	}
	return topology.Refuse(topology.Invalid, text+": there is no %s '%s'", what, name)
}

// DeletePermission deletes a user's permissions and says whether there were any. Connections stay; their next
// operations are refused (BR-3.6).
func (b *Broker) DeletePermission(vhost message.VHost, user string) (existed bool, err error) {
	err = b.change(func() error {
		existed = b.users.DeletePermission(vhost, user)
		return nil
	})
	b.parametersTouched()
	return existed, err
}

// PutTopicPermission sets which keys a user may use with an exchange (BR-3.5).
func (b *Broker) PutTopicPermission(p auth.TopicPermission) (created bool, err error) {
	err = b.change(func() error {
		if err := b.checkVHost(p.VHost); err != nil {
			return err
		}
		if err := b.checkUser(p.User); err != nil {
			return err
		}
		created, err = b.users.PutTopicPermission(p)
		return err
	})
	b.parametersTouched()
	return created, err
}

// DeleteTopicPermissions deletes a user's permissions for an exchange, or all in the virtual host if exchange is nil.
// It says whether there were any.
func (b *Broker) DeleteTopicPermissions(vhost message.VHost, user string, exchange *message.ExchangeName) (existed bool, err error) {
	err = b.change(func() error {
		existed = b.users.DeleteTopicPermissions(vhost, user, exchange)
		return nil
	})
	b.parametersTouched()
	return existed, err
}
