// Package rabbitmqadmin runs RabbitMQ's own rabbitmqadmin, the one in Python that comes
// with RabbitMQ 4.0, through every verb it has, and compares what it prints with what it
// printed against RabbitMQ 4.0. The rabbitmqadmin that comes with Bartleby must print the same.
//
// The program is found on the PATH (the package rabbitmq-server of Debian 13 has it;
// scripts/testtools unpacks it) or named by -rabbitmqadmin. Without it its test is skipped,
// and fails where CI is true in the environment. To record anew:
//
//	go test ./test/rabbitmqadmin -rabbitmqadmin FILE -record -peer 127.0.0.1:15674
package rabbitmqadmin
