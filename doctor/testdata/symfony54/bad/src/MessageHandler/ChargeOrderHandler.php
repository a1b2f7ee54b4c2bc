<?php

namespace App\MessageHandler;

use App\Message\ChargeOrder;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Messenger\Exception\RecoverableMessageHandlingException;
use Symfony\Component\Messenger\Handler\MessageHandlerInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;

final class ChargeOrderHandler implements MessageHandlerInterface
{
    private $client;
    private $locks;

    public function __construct(HttpClientInterface $client, LockFactory $locks)
    {
        $this->client = $client;
        $this->locks = $locks;
    }

    public function __invoke(ChargeOrder $message)
    {
        $lock = $this->locks->createLock('charge-'.$message->orderId); // ZB151
        $lock->acquire(true);

        $response = $this->client->request('POST', 'https://api.yookassa.ru/v3/payments', [ // ZB150
            'headers' => [
                'Idempotence-Key' => uniqid('', true), // ZB152
            ],
            'json' => ['amount' => ['value' => '19.99', 'currency' => 'RUB']],
        ]);

        if (500 <= $response->getStatusCode()) {
            throw new RecoverableMessageHandlingException('later'); // ZB120
        }
    }
}
