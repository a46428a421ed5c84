// A NestJS application of one controller, without a compiler: decorators are called as
// what they are, functions.

import 'reflect-metadata';

import {Module} from '@nestjs/common';
import {NestFactory} from '@nestjs/core';
import {ClientProxyFactory, Ctx, EventPattern, MessagePattern, Payload, Transport} from '@nestjs/microservices';
import {Controller} from '@nestjs/common';

import {URI} from '../node/interop.mjs';

const socketOptions = {reconnectTimeInSeconds: 1, heartbeatIntervalInSeconds: 5};

function rmq(options) {
  return {transport: Transport.RMQ, options: {urls: [URI], socketOptions, queueOptions: {durable: true}, persistent: true, ...options}};
}

// serve starts a microservice. events and requests have a handler (data, context) for each pattern.
export async function serve(options, {events = {}, requests = {}}) {
  class AppController {}
  const handle = (decorator, pattern, handler) => {
    AppController.prototype[pattern] = handler;
    Payload()(AppController.prototype, pattern, 0);
    Ctx()(AppController.prototype, pattern, 1);
    const descriptor = Object.getOwnPropertyDescriptor(AppController.prototype, pattern);
    Reflect.decorate([decorator(pattern)], AppController.prototype, pattern, descriptor);
  };
  for (const [pattern, handler] of Object.entries(events)) handle(EventPattern, pattern, handler);
  for (const [pattern, handler] of Object.entries(requests)) handle(MessagePattern, pattern, handler);
  Controller()(AppController);

  class AppModule {}
  Module({controllers: [AppController]})(AppModule);
  const app = await NestFactory.createMicroservice(AppModule, {...rmq(options), logger: ['fatal']});
  await app.listen();
  return app;
}

// connect makes a client of a microservice.
export async function connect(options) {
  const client = ClientProxyFactory.create(rmq(options));
  await client.connect();
  return client;
}
