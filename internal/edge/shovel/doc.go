// Package shovel runs dynamic shovels. A shovel takes messages from a queue or an exchange
// and publishes them to another one, on this node or elsewhere, as a parameter of the
// component "shovel" says. The server starts it; the broker reports changed parameters.
//
// Shovels owns the workers, one goroutine for each shovel, which ends with Stop or with its
// parameter. It owns no messages: in the default mode on-confirm a message leaves its source
// after its target has confirmed it, so a crash between the two leaves it in both. It uses
// only AMQP 0-9-1.
package shovel
