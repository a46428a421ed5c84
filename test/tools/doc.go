// Package tools plays what management tools ask of RabbitMQ's API against a node, and
// looks for every field that each needs, with its type. The requests and fields were
// written down from the tools' sources, which each file of testdata names: a tool
// that finds all this works, whatever else the answers hold.
//
// A file is a list of requests and what is wanted of the answer:
//
//	# a comment
//	PUT queues/%2F/orders {"durable":true}
//	  = 201
//	GET queues/%2F/orders
//	  = 200
//	  name string orders
//	  message_stats.publish_details.rate number
//	  [].name string        of each element of a list, of which there must be one
//	  @Location direct/key  a header
//
// Types are string, number, boolean, object, list and any; what follows is the
// value. PUBLISH QUEUE N publishes, and CONSUME QUEUE takes one message and keeps it,
// both by AMQP.
package tools
