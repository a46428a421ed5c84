// Package apidiff holds the management API beside RabbitMQ's: a topology of every
// kind of object is built on a node, every resource is read, and the shape of each
// answer, its status and its keys with the types of their values, is compared with
// what RabbitMQ 4.3 showed of the same topology.
//
// RabbitMQ's shapes are recorded in testdata/rabbitmq-4.3.txt, so that the test
// needs no RabbitMQ. What may differ is listed in testdata/exceptions.txt, each
// with its reason; an exception that nothing needs any more fails the test too.
//
//	go test ./test/apidiff                       ours against the recording
//	go test ./test/apidiff -record -peer-http http://127.0.0.1:15673 -peer-amqp 127.0.0.1:5673
//
// The package owns the virtual host "apidiff" of the node it is pointed at, and
// deletes it before and afterwards.
package apidiff
