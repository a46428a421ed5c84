package main

import (
	"context"
	"net/http"
	"net/url"
)

// makeVhost makes a cell's virtual host, empty, with every permission for the user.
func (b *broker) makeVhost(ctx context.Context, vhost string) error {
	_ = b.deleteVhost(ctx, vhost) // what an ended run may have left
	if err := b.call(ctx, http.MethodPut, "/api/vhosts/"+url.PathEscape(vhost), "{}"); err != nil {
		return err
	}
	return b.call(ctx, http.MethodPut, "/api/permissions/"+url.PathEscape(vhost)+"/"+url.PathEscape(b.amqp.User.Username()),
		`{"configure":".*","write":".*","read":".*"}`)
}

func (b *broker) deleteVhost(ctx context.Context, vhost string) error {
	return b.call(ctx, http.MethodDelete, "/api/vhosts/"+url.PathEscape(vhost), "")
}
