package broker

import (
	"errors"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// QueueShape is how a queue was declared.
type QueueShape struct {
	Name                           message.QueueName
	Type                           topology.QueueType
	Durable, Exclusive, AutoDelete bool
	Arguments                      amqp091.Table // not to be changed
}

// DescribeQueue is PassiveQueue, and says how the queue was declared. It may be exclusive to another connection.
func (c *Connection) DescribeQueue(name message.QueueName) (Declared, QueueShape, error) {
	q, err := c.find(name, func(r topology.Resource) error { return c.anyPermission(r) })
	if e, ok := err.(*topology.Error); ok && e.Kind == topology.ResourceLocked { // another connection's queue can be seen
		err = nil
		c.b.glance(func() {
			if v, there := c.b.state.VHost(c.VHost); there {
				q, _ = v.Queue(name)
			}
		})
		if q == nil {
			err = topology.NoQueue(c.VHost, name)
		}
	}
	if err != nil {
		return Declared{}, QueueShape{}, err
	}
	var shape QueueShape
	c.b.glance(func() {
		shape = QueueShape{q.Name, q.Type, q.Durable, q.Exclusive, q.AutoDelete, q.PresentArguments()}
	})
	return c.declared(q, false), shape, nil
}

// BindingShape is a binding between two known ends.
type BindingShape struct {
	Key       message.RoutingKey
	Arguments amqp091.Table // not to be changed
	// Hash distinguishes the bindings that have the same key and ends; "" without arguments.
	Hash string
}

// BindingsBetween lists the bindings from an exchange to a destination, for a client that may bind them: who may write to the
// destination and read from the source.
func (c *Connection) BindingsBetween(source message.ExchangeName, kind topology.ResourceKind, destination string) (list []BindingShape, err error) {
	err = c.decided(func() error {
		return errors.Join(c.b.look(func() {
			list = list[:0]
			if err = c.permit(topology.Write, topology.Resource{VHost: c.VHost, Kind: kind, Name: destination}); err != nil {
				return
			}
			if err = c.permit(topology.Read, topology.Resource{VHost: c.VHost, Kind: topology.ExchangeResource, Name: string(source)}); err != nil {
				return
			}
			v, ok := c.b.state.VHost(c.VHost)
			if !ok {
				return
			}
			found := v.BindingsBetween(source, kind, destination)
			topology.SortBindings(found)
			for _, b := range found {
				shape := BindingShape{Key: b.Key, Arguments: b.Arguments}
				if len(b.Arguments) > 0 {
					_, shape.Hash, _ = strings.Cut(b.PropertiesKey(), "~")
				}
				list = append(list, shape)
			}
		}), err)
	})
	return list, err
}
