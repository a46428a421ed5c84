package openapi

// action is one that requests may name.
type action struct {
	do func(*call) (data any, err error)
	// changes: the audit log has it.
	changes bool
	// says200: its answer has a code, a message and whether it succeeded.
	says200 bool
	// anyInstance: the request need not say which instance it is about.
	anyInstance bool
}

// actions lists all actions (DL-22.16, DL-22.17).
var actions = map[string]action{
	"CreateVirtualHost": {do: createVirtualHost, changes: true},
	"DeleteVirtualHost": {do: deleteVirtualHost, changes: true},
	"ListVirtualHosts":  {do: listVirtualHosts},

	"CreateExchange":               {do: createExchange, changes: true},
	"DeleteExchange":               {do: deleteExchange, changes: true},
	"ListExchanges":                {do: listExchanges},
	"ListExchangeUpStreamBindings": {do: listExchangeUpStreamBindings, says200: true},
	"ListDownStreamBindings":       {do: listDownStreamBindings, says200: true},

	"CreateQueue":               {do: createQueue, changes: true},
	"DeleteQueue":               {do: deleteQueue, changes: true},
	"ListQueues":                {do: listQueues},
	"ListQueueConsumers":        {do: listQueueConsumers},
	"ListQueueUpStreamBindings": {do: listQueueUpStreamBindings},

	"CreateBinding": {do: createBinding, changes: true},
	"DeleteBinding": {do: deleteBinding, changes: true},
	"ListBindings":  {do: listBindings},

	"GetMetadataAmount": {do: getMetadataAmount, anyInstance: true},
}
