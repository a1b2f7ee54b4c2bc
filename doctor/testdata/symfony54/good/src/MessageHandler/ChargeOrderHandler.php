<?php

namespace App\MessageHandler;

use App\Message\ChargeOrder;
use Symfony\Component\Messenger\Exception\RecoverableMessageHandlingException;
use Symfony\Component\Messenger\Handler\MessageHandlerInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;

final class ChargeOrderHandler implements MessageHandlerInterface
{
    private $client;

    public function __construct(HttpClientInterface $client)
    {
        $this->client = $client;
    }

    public function __invoke(ChargeOrder $message)
    {
        $response = $this->client->request('POST', 'http://127.0.0.1:8070/yookassa/v3/payments', [
            'headers' => ['Zabor-Order' => $message->orderId, 'Zabor-Step' => 'charge'],
            'json' => ['amount' => ['value' => '19.99', 'currency' => 'RUB']],
        ]);

        if (503 === $response->getStatusCode()) {
            throw new \RuntimeException('zabor: come back later');
        }
    }
}
