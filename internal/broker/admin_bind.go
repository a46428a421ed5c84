package broker

import "bartleby.mq/internal/topology"

// BindAs makes a binding like Bind and returns it, or the one there is.
func (c *Connection) BindAs(d topology.BindingDecl) (b *topology.Binding, err error) {
	d.VHost, d.Owner = c.VHost, c.owner
	if err := d.EncodeArguments(); err != nil {
		return nil, err
	}
	err = c.changing(func() error {
		b, _, err = c.b.state.Bind(d, c.permit)
		return err
	})
	return b, err
}
