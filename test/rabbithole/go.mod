module bartleby.mq/test/rabbithole

go 1.26.0

require (
	github.com/michaelklishin/rabbit-hole/v2 v2.12.0 // indirect
	github.com/michaelklishin/rabbit-hole/v3 v3.2.0 // indirect
)
