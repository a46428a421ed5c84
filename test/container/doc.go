// Package container has no code but its tests: they run the binary as the container
// image does, in a root of its own with the Dockerfile's variables, user and command,
// and do with it what Testcontainers' modules for RabbitMQ do with a container. It
// needs no Docker; where the root of a process cannot be changed it is skipped.
package container
