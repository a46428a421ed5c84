package broker

import "bartleby.mq/internal/core/topology"

// Bind makes a binding (BR-6.1).
func (c *Connection) Bind(d topology.BindingDecl) (created bool, err error) {
	_, created, err = c.bind(d)
	return created, err
}

// BindAs is Bind, and returns the binding, whether it is new or not.
func (c *Connection) BindAs(d topology.BindingDecl) (b *topology.Binding, err error) {
	b, _, err = c.bind(d)
	return b, err
}

func (c *Connection) bind(d topology.BindingDecl) (b *topology.Binding, created bool, err error) {
	d.VHost, d.Owner = c.VHost, c.owner
	d.EncodeArguments()
	err = c.changing(func() error {
		if c.bindsSettle(&d) {
			return c.errSettle()
		}
		b, created, err = c.b.state.Bind(d, c.permit)
		return err
	})
	if err == nil && b != nil {
		c.b.notifyBinding("binding.created", b, c.User)
	}
	return b, created, err
}

// Unbind removes a binding (BR-6.2).
func (c *Connection) Unbind(d topology.BindingDecl) error {
	d.VHost, d.Owner = c.VHost, c.owner
	d.Identify()
	var removed topology.Removed
	err := c.changing(func() (err error) {
		if c.bindsSettle(&d) {
			return c.errSettle()
		}
		removed, err = c.b.state.Unbind(d, c.permit)
		return err
	})
	if err == nil {
		c.b.notifyRemoved(removed, c.User)
	}
	return err
}
